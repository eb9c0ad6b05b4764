"""Many machines: the same application in replicas under Ray Serve."""
