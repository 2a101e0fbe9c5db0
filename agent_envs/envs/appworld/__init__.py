"""AppWorld: an offline world of everyday apps for agents that write code."""
