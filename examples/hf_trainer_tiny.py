"""Watch a Hugging Face `Trainer` with one callback: a tiny transformer of random weights, and nothing is downloaded.

The model learns to continue a cyclic sequence. Queries passed at the start say what to record: the norm of every
gradient, and the spread of an attention layer's outputs. Afterwards the recorded run answers them.

    python examples/hf_trainer_tiny.py
"""

from __future__ import annotations

import os
import tempfile
import warnings

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import sightglass as sg
from sightglass.callbacks.huggingface import SightglassCallback

VOCABULARY, LENGTH, N_SEQUENCES = 12, 16, 320

NORMS = sg.on("batch").map(lambda b: b.grads.map(lambda name, g: g.norm()))
SPREAD = sg.on("batch").map(lambda b: b.activations["transformer.h.0.attn.c_proj"].std()).mean(every=10)
LOSS = sg.on("batch").map(lambda b: b.activations[""].loss)


def sequences():
    """Return sequences that count up by one, two or three, around the vocabulary."""
    rows = [(torch.arange(LENGTH) * (1 + i % 3) + i) % VOCABULARY for i in range(N_SEQUENCES)]
    return [{"input_ids": row, "labels": row} for row in rows]


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        callback = SightglassCallback(
            f"hf-{os.getpid()}", dir=f"{folder}/runs", record=[NORMS, SPREAD, LOSS], budget=None
        )
        args = TrainingArguments(
            output_dir=f"{folder}/out", num_train_epochs=3, per_device_train_batch_size=16, learning_rate=1e-2,
            logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
            dataloader_pin_memory=False,
        )  # fmt: skip
        Trainer(model, args, train_dataset=sequences(), callbacks=[callback]).train()

        (info,) = sg.runs(f"{folder}/runs")
        old = sg.open(info.directory)
        losses = [record.value for record in old.stream(LOSS)]
        norms = [record.value for record in old.stream(NORMS)]
        spread = [record.value for record in old.stream(SPREAD)]
        print(f"loss: {losses[0]:.2f} at first, {losses[-1]:.2f} at last; logged: {', '.join(old.tags())}")
        print(f"gradients of {len(norms[0])} tensors at each of {len(norms)} steps")
        print(f"spread of the first attention's outputs: {spread[0]:.3f}, then {spread[-1]:.3f}")
        assert losses[-1] < losses[0] / 2
        assert "transformer.h.1.mlp.c_fc.weight" in norms[0]
        sg.plot(old.stream(LOSS), title="loss")


if __name__ == "__main__":
    main()
