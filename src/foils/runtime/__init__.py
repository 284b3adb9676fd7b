"""What every part stands on: options and doors, results; errors, progress, parallel work, memory."""
