"""A convolutional net as in PyTorch's MNIST example, on pictures made of waves."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    """Picture i has the class i % 10: stripes whose width and direction follow from it."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        label = i % 10
        y, x = torch.meshgrid(torch.arange(28, dtype=torch.float64), torch.arange(28, dtype=torch.float64),
                              indexing="ij")
        image = torch.sin(x * (0.2 + 0.1 * label) + y * (0.9 - 0.08 * label) + i)
        return image.unsqueeze(0), label


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.fc1 = nn.Linear(8 * 6 * 6, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.bn(self.conv2(x))), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train():
    model = Net().double()
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            if "bn" not in name:
                p.copy_((torch.sin(torch.arange(p.numel(), dtype=torch.float64) * 1.3 + i) * 0.2).view_as(p))
    model.train()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    losses = []
    for epoch in range(5):
        for data, target in DataLoader(Waves(160), batch_size=8):
            optimizer.zero_grad()
            output = model(data)
            loss = F.nll_loss(output, target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in DataLoader(Waves(100), batch_size=50):
            pred = model(data).argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    return losses, correct


def run():
    losses, correct = train()
    return {"losses": losses, "correct": [float(correct)]}


if __name__ == "__main__":
    print(run()["losses"][::20], run()["correct"])
