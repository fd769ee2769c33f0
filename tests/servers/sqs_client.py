"""A client of SQS that knows nothing of the relay: its JSON protocol over the standard library's HTTP."""

import http.client
import json


class SqsError(RuntimeError):
    """The server refuses; `code` is the name of the error."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.code = body.get("__type", "").rpartition("#")[2] if isinstance(body, dict) else ""


class SqsClient:
    """Calls of one server. Requests carry no signature: ElasticMQ wants none."""

    def __init__(self, host, port, timeout=30):
        self.address, self.timeout = (host, port), timeout
        self.connection = None

    def call(self, action, **members):
        """One call on a connection that is kept; a second one is tried when the server had closed it meanwhile."""
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        for last in (self.connection is None, True):
            self.connection = self.connection or http.client.HTTPConnection(*self.address, timeout=self.timeout)
            try:
                self.connection.request("POST", "/", json.dumps(members), headers)
                answer = self.connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, ConnectionError):
                self.close()
                if last:
                    raise
        try:
            body = json.loads(text or b"{}")
        except ValueError:
            body = text
        if answer.status != 200:
            raise SqsError(answer.status, body)
        return body

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def create_queue(self, name, **attributes):
        """Returns its URL. A name that ends in .fifo makes it a FIFO queue."""
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        return self.call("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]

    def delete_queues(self):
        for url in self.call("ListQueues").get("QueueUrls") or []:
            self.call("DeleteQueue", QueueUrl=url)

    def receive(self, url, wait=0):
        """Up to ten messages, which are deleted at once."""
        messages = self.call(
            "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait,
            AttributeNames=["All"], MessageAttributeNames=["All"]).get("Messages") or []
        if messages:
            self.call("DeleteMessageBatch", QueueUrl=url, Entries=[
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)])
        return messages
