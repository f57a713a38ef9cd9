"""Growing networks as an environment: small hosts with slots for seeds,
and what each seed is worth by counterfactual evaluation.
"""
