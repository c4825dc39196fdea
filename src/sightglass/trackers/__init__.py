"""Where trackers plug in: programs that log to TensorBoard or Weights & Biases can be asked while they run.

`tensorboard` has a `SummaryWriter` with the interface of PyTorch's, and `wandb` adopts a run of Weights & Biases.
"""
