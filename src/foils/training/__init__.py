"""Training: losses, data sets, trainers for bi-encoders and rerankers. Import its modules by name; they need torch."""
