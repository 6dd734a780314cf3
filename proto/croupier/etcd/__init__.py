"""The part of etcd's API, version 3, that a master uses."""
