"""What was recorded, in other formats: tables, NumPy, TensorBoard, MindSpore."""
