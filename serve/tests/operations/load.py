"""Clients that send requests until they are stopped."""

import threading


class Load:
    """Clients that send one request after the other, each with a seed of its own. `request` returns the answer to a seed."""

    def __init__(self, request, clients=8):
        self.request, self.clients, self.is_over = request, clients, False
        self.answers, self.errors = {}, []
        self.threads = [threading.Thread(target=self.run, args=(client,)) for client in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, client):
        seed = client
        while not self.is_over:
            try:
                self.answers[seed] = self.request(seed)
            except Exception as error:
                self.errors.append((seed, repr(error)))
            seed += self.clients

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
