"""EYES: facts about hosts. No torch, and no CUDA context: the controller never touches a GPU."""
