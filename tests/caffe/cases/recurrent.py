"""recurrent.py - layers over time."""
from case import Case, generator, layer


def recurrent(r, type_name, states):
    steps, streams, hidden = r.integer(1, 6), r.integer(1, 4), r.integer(1, 5)
    x = (steps, streams) + r.shape(r.integer(1, 3), most=4)
    inputs = {"x": x, "cont": r.integers((steps, streams), 0, 1)}
    p = {"num_output": hidden}
    if r.maybe(0.3):
        inputs["fixed"] = (streams,) + r.shape(r.integer(1, 2), most=4)
    tops = ["y"]
    if r.maybe(0.4):
        p["expose_hidden"] = True
        for i in range(states):
            inputs["state%d" % i] = (1, streams, hidden)
            tops.append("last%d" % i)
    if r.maybe(0.3):
        p["debug_info"] = False
    return Case(layer(type_name, list(inputs), tops, name="rec", recurrent_param=p), inputs, scale=1.0,
                phase="TRAIN" if r.maybe() else "TEST",
                no_input_grad=["cont"] + ["state%d" % i for i in range(states)], no_grad=tops[1:])


@generator("LSTM", 60)
def lstm(r):
    return recurrent(r, "LSTM", 2)


@generator("RNN", 60)
def rnn(r):
    return recurrent(r, "RNN", 1)


@generator("LSTMUnit", 40)
def lstm_unit(r):
    streams, hidden = r.integer(1, 5), r.integer(1, 6)
    inputs = {"c": (1, streams, hidden), "gates": (1, streams, 4 * hidden), "cont": r.integers((1, streams), 0, 1)}
    return Case(layer("LSTMUnit", list(inputs), ["next", "h"]), inputs, no_input_grad=["cont"])
