"""How much memory a run needs, by arithmetic alone: nothing is loaded.

Bytes, for a process. ``P`` parameters, of which ``Q`` are trained (all, or those of LoRA and a shared
critic); ``w`` bytes of a weight, ``t`` of a trained one, ``c`` of a number in the computation (2 under
bfloat16 autocast, else 4); ``L`` layers, ``h`` hidden, ``i`` intermediate and ``q`` attention width, ``k``
that of keys, ``V`` vocabulary, ``P'`` parameters of the critic::

    weights       (P - Q) w + Q t  without LoRA P t; with it P w + Q t
    copies        P c              autocast's, where trained weights are wider than the computation
    gradients     Q t, twice under DDP (its buckets)
    optimizer     2 Q t            AdamW's two moments
    reference     P t              with a KL term; nothing with LoRA, which switches its adapter off
    critic        4 x 4 P'         PPO: weights, gradient and moments in float32, never sharded
    training      per token L (16 h + 2 c h + 4 c q + 4 c i), keys and values repeated to the width of q
                  LoRA in float32 below autocast: c (5 h + q + i) more
                  gradient checkpointing: 4 L h, and one layer of the above
                  and the logits: 16 V per reply token (8 + 2 c in bfloat16); on a GPU TRL's chunked head
                  keeps 4 h per token and, where it is trained, 4 V h for its gradient
    generation    rows (prompt + reply) 2 L k c for keys and values; per prompt token 8 h + 3 c (i + q)
                  while prompts are read; sharded weights gathered whole

``total`` is what stays (weights to critic) and the larger of training and generation. It is an upper bound
in that every prompt is taken to be as long as allowed, and every generation call full. Not in it: a vision
tower's activations (its weights are), fragmentation and the CUDA context: see :data:`MARGIN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

GB = 1e9
MARGIN = 1.1  # for fragmentation; a GPU is full at 90 %
CONTEXT_BYTES = 1e9  # CUDA's context and libraries' workspaces
_ADAM_MOMENTS = 2
_CRITIC_COPIES = 4  # weights, gradient, two moments
SHARDINGS = ("ddp", "zero2", "zero3")


@dataclass(frozen=True)
class Linear:
    """A linear layer's dotted name and its sides."""

    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True)
class ModelShape:
    """What the arithmetic needs to know of a model; :func:`trainers.trl_adapter.shapes.shape_of` counts it.

    Args:
        kind: name of the transformers class.
        parameters: all numbers, tied ones once, vision tower included.
        head: parameters of an output head of its own; 0 where it is tied to the embedding.
        attention, keys: heads times head size, of queries and of keys.
        linears: all linear layers but the output head.
        context: longest sequence in tokens, where the model says so.
        vision: parameters of the vision tower.
    """

    kind: str
    parameters: int
    head: int
    layers: int
    hidden: int
    intermediate: int
    attention: int
    keys: int
    heads: int
    vocabulary: int
    linears: tuple[Linear, ...] = ()
    context: int | None = None
    vision: int = 0

    def adapter(self, rank: int, targets: Sequence[str] = ("all-linear",)) -> int:
        """Parameters of a LoRA adapter: rank (inputs + outputs) per linear layer that it is put on."""
        return sum(rank * (x.inputs + x.outputs) for x in self.linears if _hit(x.name, targets))


def _hit(name: str, targets: Sequence[str]) -> bool:
    return any(t in ("all-linear", name) or name.endswith(f".{t}") for t in targets)


@dataclass(frozen=True)
class Load:
    """What a run does with the model, as far as memory goes.

    Args:
        weight: bytes of an untrained weight (0.5 in four bits).
        trained: bytes of a trained one.
        compute: bytes of a number in the computation.
        adapter: parameters of the LoRA adapter; 0: all weights are trained.
        reference: a KL term needs the starting model.
        critic: PPO's critic: none, own (a second model) or shared (an adapter on the policy).
        checkpointing: activations are computed twice.
        eager: attention that keeps its matrix.
        fused_head: TRL's chunked head (GPU); else the logits of all replies exist at once.
        micro_batch_tokens, prompt, reply: tokens.
        rows: prompts of one generation call of a process.
    """

    weight: float
    trained: float
    compute: float
    adapter: int
    reference: bool
    critic: str
    checkpointing: bool
    eager: bool
    fused_head: bool
    micro_batch_tokens: int
    prompt: int
    reply: int
    rows: int


@dataclass(frozen=True)
class Estimate:
    """Bytes of one process."""

    weights: float
    gradients: float
    optimizer: float
    reference: float
    critic: float
    training: float
    generation: float

    @property
    def fixed(self) -> float:
        """What stays during the whole run, whatever is played."""
        return self.weights + self.gradients + self.optimizer + self.reference + self.critic

    @property
    def total(self) -> float:
        """What stays, and the larger of the two phases."""
        return self.fixed + max(self.training, self.generation)

    def fits(self, memory: float) -> bool:
        """Into a GPU of ``memory`` bytes, margin and context included."""
        return self.total * MARGIN + CONTEXT_BYTES <= memory


def estimate(
    shape: ModelShape, load: Load, *, processes: int = 1, sharding: str = "ddp"
) -> Estimate:
    """Bytes of each of ``processes``.

    Args:
        sharding: ``ddp`` (all on each), ``zero2`` (gradients and optimizer divided) or ``zero3`` (weights
            and reference too; FSDP's full sharding).
    """
    share = processes if sharding != "ddp" else 1
    sliced = share if sharding == "zero3" else 1
    learned = load.adapter or shape.parameters
    whole = shape.parameters * (load.weight if load.adapter else load.trained)
    if load.adapter:
        whole += load.adapter * load.trained
    buckets = 2 if processes > 1 and sharding == "ddp" else 1
    critic, critic_training = _critic(shape, load)
    training = max(_training(shape, load), critic_training)
    generation = _generation(shape, load)
    if sliced > 1:
        generation += whole * (sliced - 1) / sliced
        training += 2 * _largest_layer(shape) * load.compute  # the layer in use and the next one
    return Estimate(
        weights=whole / sliced,
        gradients=learned * load.trained * buckets / share,
        optimizer=_ADAM_MOMENTS * learned * load.trained / share,
        reference=whole / sliced if load.reference and not load.adapter else 0.0,
        critic=critic,
        training=training,
        generation=generation,
    )


def _critic(shape: ModelShape, load: Load) -> tuple[float, float]:
    """(what stays, what a micro-batch of its update takes), in bytes."""
    if load.critic == "none":
        return 0.0, 0.0
    if load.critic == "shared":  # its micro-batches are like the policy's, without logits
        return _CRITIC_COPIES * 4.0 * (load.adapter + shape.hidden + 1), 0.0
    own = shape.parameters - shape.head + shape.hidden + 1
    float32 = replace(load, compute=4, trained=4, adapter=0, checkpointing=False)
    return _CRITIC_COPIES * 4.0 * own, _tokens(load) * _per_token(shape, float32)


def _tokens(load: Load) -> int:
    """Tokens of the widest micro-batch: a row at least."""
    return max(load.micro_batch_tokens, load.prompt + load.reply)


def _training(shape: ModelShape, load: Load) -> float:
    tokens = _tokens(load)
    per_layer = _per_token(shape, load) / shape.layers
    kept = 4 * shape.hidden * shape.layers + per_layer if load.checkpointing else (
        per_layer * shape.layers
    )  # fmt: skip
    copies = (
        0.0 if load.adapter or load.trained <= load.compute else shape.parameters * load.compute
    )
    if load.fused_head:
        head = 0 if load.adapter else 4 * shape.vocabulary * shape.hidden
        return tokens * (kept + 4 * shape.hidden) + copies + head
    replies = tokens * load.reply / (load.prompt + load.reply)
    logits = 16 if load.compute >= 4 else 8 + 2 * load.compute
    return tokens * kept + copies + replies * shape.vocabulary * logits


def _per_token(shape: ModelShape, load: Load) -> float:
    """Bytes that all layers keep of a token for the backward pass."""
    c, h = load.compute, shape.hidden
    norms = 2 * (8 * h + c * h)  # input and scaled in float32, output as the linear layers take it
    attention = 4 * c * shape.attention  # query, result, and keys and values repeated to its width
    mlp = 4 * c * shape.intermediate  # gate, its activation, up, product
    matrix = 3 * c * shape.heads * (load.prompt + load.reply) if load.eager else 0
    adapters = 0.0
    if load.adapter and load.trained > c:  # its input is cast twice, once for each adapted layer
        adapters = c * (5 * h + shape.attention + shape.intermediate)
    return shape.layers * (norms + attention + mlp + matrix + adapters)


def _generation(shape: ModelShape, load: Load) -> float:
    c, rows = load.compute, load.rows
    cache = rows * (load.prompt + load.reply) * 2 * shape.layers * shape.keys * c
    reading = 8 * shape.hidden + 3 * c * (shape.intermediate + shape.attention)
    if load.eager:
        reading += 2 * c * shape.heads * load.prompt
    return cache + rows * load.prompt * reading + rows * shape.vocabulary * (4 + c)


def _largest_layer(shape: ModelShape) -> float:
    """Parameters that are gathered together: a layer, or the embedding."""
    body = shape.parameters - shape.head - shape.vision - shape.vocabulary * shape.hidden
    return max(body / shape.layers, shape.vocabulary * shape.hidden)
