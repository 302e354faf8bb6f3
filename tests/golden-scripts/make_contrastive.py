"""What PyTorch gives for a contrastive loss over examples with and without negatives: the number `MIXED` of
trainer/src/loss/tests.rs.

Eight texts of eight columns: anchors 0, 2 and 5, their matches 1, 3 and 6, negatives 4 and 7. Cosines times 5; the sum
over anchors of the cross-entropy of the match among all matches and negatives.
"""
import torch

numbers = [((i * 7919 + 13) % 1009) / 504.5 - 1.0 for i in range(64)]
units = torch.nn.functional.normalize(torch.tensor(numbers, dtype=torch.double).reshape(8, 8), dim=-1)
scores = 5 * units[[0, 2, 5]] @ units[[1, 3, 4, 6, 7]].T
print(repr(torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1, 3]), reduction="sum").item()))
