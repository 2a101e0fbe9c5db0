"""Writes the table of docs/hardware.md from the code that --dry-run uses: python docs/hardware_table.py"""

from __future__ import annotations

from pathlib import Path

from trainers.trl_adapter.budget import fewest_gpus, gpus, model_shape, needed
from trainers.trl_adapter.config import load_config
from trainers.trl_adapter.memory import GB, SHARDINGS
from trainers.trl_adapter.presets import resolve

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "hardware.md"
BEGIN, END = "<!-- table: python docs/hardware_table.py -->", "<!-- end of table -->"
EXAMPLES = (
    "gigpo/alfworld", "gigpo/alfworld_lora", "gigpo/alfworld_7b", "gigpo/alfworld_7b_lora",
    "ppo/alfworld", "ppo/alfworld_lora", "gigpo/sokoban", "gigpo/sokoban_lora",
)  # fmt: skip


def table() -> str:
    """One row per example: GB on one GPU, and how many 80-GB GPUs it takes."""
    lines = [
        "| example | model | stays | training | generation | total, 1 GPU | total, 8 x ZeRO-3 "
        "| 80-GB GPUs: DDP | ZeRO-2 | ZeRO-3, FSDP2 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(row(name) for name in EXAMPLES)])


def row(name: str) -> str:
    """An example's figures in GB."""
    config = resolve(load_config(ROOT / "examples" / f"{name}.yaml"))
    shape = model_shape(config)
    assert shape is not None
    one, eight = (needed(config, shape, machine) for machine in (gpus(), gpus(8, "zero3")))
    figures = (one.fixed, one.training, one.generation, one.total, eight.total)
    few = (str(fewest_gpus(config, shape, how) or "-") for how in SHARDINGS)
    model = config.model.path.rpartition("/")[2].removesuffix("-Instruct")
    cells = [f"[{name}](../examples/{name}.yaml)", model + (", LoRA" if config.lora.rank else "")]
    return f"| {' | '.join([*cells, *(f'{x / GB:.1f}' for x in figures), *few])} |"


def with_table(text: str) -> str:
    """The page with the table as the code has it now."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
