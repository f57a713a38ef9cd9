/* Calls back before os._exit, os.execv and os.execve, by replacing the C function behind each of them. The Python
   objects stay what they are: same identity, signature and pickle, also where the program has imported them by name.
   The layout of PyMethodDef has not changed since Python 3.0; the caller checks name and flags before it calls. */

#include <stddef.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define NUM_FUNCTIONS 3

/* METH_FASTCALL passes three arguments, METH_FASTCALL | METH_KEYWORDS four; the last one is passed on unread. */
typedef void *(*function)(void *self, void *const *args, ptrdiff_t num_args, void *names);

struct method {
    const char *name;
    function call;
    int flags;
    const char *doc;
};

static function originals[NUM_FUNCTIONS];
static void (*callback)(int number);

static void *call(int number, void *self, void *const *args, ptrdiff_t num_args, void *names)
{
    callback(number);
    return originals[number](self, args, num_args, names);
}

static void *call_0(void *self, void *const *args, ptrdiff_t n, void *names) { return call(0, self, args, n, names); }
static void *call_1(void *self, void *const *args, ptrdiff_t n, void *names) { return call(1, self, args, n, names); }
static void *call_2(void *self, void *const *args, ptrdiff_t n, void *names) { return call(2, self, args, n, names); }

static const function replacements[NUM_FUNCTIONS] = {call_0, call_1, call_2};

EXPORT void process_end_call(void (*before)(int number)) { callback = before; }

EXPORT void process_end_watch(int number, struct method *method)
{
    originals[number] = method->call;
    method->call = replacements[number];
}
