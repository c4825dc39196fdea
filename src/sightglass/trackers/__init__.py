"""Where trackers plug in: programs that log to TensorBoard or Weights & Biases can be asked while they run.

`tensorboard` has a `SummaryWriter` with the interface of PyTorch's, and `wandb` adopts a run of Weights & Biases.
`wandb_run`, `wandb_state` and `wandb_values` are the parts of `sightglass.wandb`, the interface of Weights & Biases.
"""
