"""WebShop: an online shop in text, with search, options and a graded reward."""

from agent_envs.envs.webshop.env import WebShopEnv
from agent_envs.envs.webshop.product import Product

__all__ = ["Product", "WebShopEnv"]
