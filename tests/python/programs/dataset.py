"""A Dataset of a program with nested samples, a collate function, a sampler, and a loop over epochs."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler, Subset


class Points(Dataset):
    def __init__(self, count, transform=None):
        self.points = torch.sin(torch.arange(count * 3, dtype=torch.float64) * 0.9).view(count, 3)
        self.transform = transform

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        point = self.points[index]
        if self.transform:
            point = self.transform(point)
        return {"point": point, "label": float(point.sum() > 0), "name": f"point {index}", "index": index}


def collate(samples):
    points = torch.stack([s["point"] for s in samples])
    labels = torch.tensor([s["label"] for s in samples], dtype=torch.float64)
    return points, labels


def run():
    data = Points(120, transform=lambda p: p * 2 + 0.1)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel(), dtype=torch.float64) + i) * 0.3).view(p.shape))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)
    criterion = nn.BCEWithLogitsLoss()
    losses, names, sizes = [], [], []
    for epoch in range(5):
        for points, labels in DataLoader(Subset(data, range(100)), batch_size=5, collate_fn=collate):
            optimizer.zero_grad()
            loss = criterion(net(points).squeeze(1), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    for batch in DataLoader(data, batch_size=32, drop_last=True):
        names += batch["name"][:2]
        sizes += [float(len(batch["name"])), float(batch["index"].sum()), batch["label"].sum().item(),
                  float(batch["point"].dtype == torch.float64)]
    seen = sorted(int(i) for batch in DataLoader(data, batch_size=7, sampler=SubsetRandomSampler(range(50, 70)))
                  for i in batch["index"])
    assert names[:3] == ["point 0", "point 1", "point 32"], names
    return {"losses": losses[:100], "batches": sizes, "seen": [float(i) for i in seen]}


if __name__ == "__main__":
    result = run()
    print(result["losses"][::20], result["batches"][:4])
