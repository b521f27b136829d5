"""Topology-aware sbatch for SageMaker HyperPod Slurm clusters.

Readers read, `plan` decides, `gate` waits, `sbatch` submits; `model.Cluster` is all they share.
"""

__version__ = "0.1.0"
