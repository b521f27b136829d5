"""What runs inside the devcluster's cage: needs the root folder's own Python, and nothing of the host's."""
