"""Files of other programs: MindSpore's and TensorBoard's, and what both have in common."""
