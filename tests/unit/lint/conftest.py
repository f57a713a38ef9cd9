"""The source that is linted in these tests is no test itself."""

collect_ignore = ["review_source"]
