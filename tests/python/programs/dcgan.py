"""A DCGAN: a generator of transposed convolutions and a discriminator with two optimizers, as in PyTorch's tutorial."""
import torch
import torch.nn as nn
import torch.optim as optim

nz, ngf, ndf = 8, 6, 6


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        wave = torch.sin(torch.arange(m.weight.numel(), dtype=torch.float64) * 1.9 + m.weight.shape[0])
        m.weight.data.copy_((wave * 0.1).view(m.weight.shape))
    elif classname.find("BatchNorm") != -1:
        nn.init.constant_(m.weight.data, 1.1)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input)


def run():
    netG, netD = Generator().double(), Discriminator().double()
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=0.002, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.002, betas=(0.5, 0.999))
    real_label, fake_label = 1.0, 0.0
    losses_g, losses_d = [], []
    for i in range(100):
        netD.zero_grad()
        real = torch.sin(torch.arange(4 * 256, dtype=torch.float64) * 0.37 + i).view(4, 1, 16, 16)
        label = torch.full((4,), real_label, dtype=torch.float64)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        noise = torch.sin(torch.arange(4 * nz, dtype=torch.float64) * 3.1 + i).view(4, nz, 1, 1)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()
        losses_d.append(errD.item())
        losses_g.append(errG.item())
    return {"discriminator": losses_d, "generator": losses_g}


if __name__ == "__main__":
    result = run()
    print(result["discriminator"][::20], result["generator"][::20])
