"""Growing networks as an environment: small hosts with slots for seeds, valued by counterfactual evaluation."""
