"""What test servers serve: ``agent-envs serve --envs tests.served:Test/Toy-v0``."""

import agent_envs

agent_envs.register("Test/Toy-v0", "tests.toy:ToyEnv")
agent_envs.register("Test/Reuser-v0", "tests.test_group:Reuser")
agent_envs.register("Test/Stateless-v0", "tests.served_envs:StatelessEnv")
agent_envs.register("Test/Slow-v0", "tests.served_envs:SlowEnv")
agent_envs.register("Test/Odd-v0", "tests.served_envs:OddEnv")
agent_envs.register("Test/Broken-v0", "tests.served_envs:BrokenEnv")
agent_envs.register("Other/Toy-v0", "tests.served_envs:OtherToyEnv")
