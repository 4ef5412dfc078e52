"""The doctor: whether this interpreter runs the overlay, why not, and what could take it away.

``examine`` asks everything about this interpreter, and ``ray_nodes`` has every node of a Ray
cluster ask it. Nothing here imports vLLM or torch.
"""
