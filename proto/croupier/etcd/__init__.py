"""What is used of etcd's own API, version 3."""
