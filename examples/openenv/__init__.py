"""agent-envs for OpenEnv's AutoEnv; see docs/openenv.md."""
