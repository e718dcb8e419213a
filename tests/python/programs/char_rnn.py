"""A character model with an LSTM, as in many tutorials: embedding, recurrent layer, decoder, generated text."""
import torch
import torch.nn as nn

TEXT = "the quick brown fox jumps over the lazy dog and then the dog sleeps while the fox runs on and on. " * 8
CHARS = sorted(set(TEXT))


class CharRNN(nn.Module):
    def __init__(self, vocabulary, hidden, layers):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.encoder = nn.Embedding(vocabulary, 12)
        self.rnn = nn.LSTM(12, hidden, num_layers=layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, x, state=None):
        out, state = self.rnn(self.encoder(x), state)
        return self.decoder(out), state

    def init_hidden(self, batch):
        zeros = torch.zeros(self.layers, batch, self.hidden, dtype=torch.float64)
        return zeros, zeros.clone()


def run():
    ids = torch.tensor([CHARS.index(c) for c in TEXT])
    model = CharRNN(len(CHARS), 24, 2).double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel(), dtype=torch.float64) * 2.1 + i) * 0.2).reshape(p.shape))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(100):
        starts = [(step * 37 + k * 101) % (len(TEXT) - 21) for k in range(6)]
        x = torch.stack([ids[s:s + 20] for s in starts])
        y = torch.stack([ids[s + 1:s + 21] for s in starts])
        state = model.init_hidden(6)
        optimizer.zero_grad()
        out, state = model(x, state)
        loss = criterion(out.reshape(-1, len(CHARS)), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    text, state = [ids[0].item()], None
    with torch.no_grad():
        for _ in range(30):
            out, state = model(torch.tensor([[text[-1]]]), state)
            text.append(out[0, -1].argmax().item())
    return {"losses": losses, "text": [float(i) for i in text]}


if __name__ == "__main__":
    result = run()
    print(result["losses"][::20], "".join(CHARS[int(i)] for i in result["text"]))
