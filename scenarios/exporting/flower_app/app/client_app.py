"""A client: it trains the model that it is sent on its part of the data, as the scenario says."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from .scenario import federation

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer with the model after the local steps of a round, and with what it counts in the mean."""
    ours = federation(context)
    client = int(context.node_config["partition-id"])
    round = int(message.content["config"]["server-round"]) - 1  # Seedbus counts from 0
    x = ours.trained(client, round, message.content["arrays"]["x"].numpy())
    metrics = MetricRecord({"num-examples": ours.weight(client)})
    content = RecordDict({"arrays": ArrayRecord({"x": Array(x)}), "metrics": metrics})
    return Message(content=content, reply_to=message)
