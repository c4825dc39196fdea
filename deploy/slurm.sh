#!/bin/bash
# Trainings of a job array join the hub that runs on the login node: `sightglass hub --listen 0.0.0.0:4222` there, once.
#
#   sbatch slurm.sh
#SBATCH --job-name=mnist
#SBATCH --array=0-7
#SBATCH --time=01:00:00

# The home folder is shared, and only you can read the file. A hub that is away does not stop the job.
export SIGHTGLASS_HUB="${SIGHTGLASS_HUB:-$HOME/.local/state/sightglass/hub/run.hub}"

srun python train.py --seed "${SLURM_ARRAY_TASK_ID:-0}"
