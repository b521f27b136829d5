"""An emulated SageMaker HyperPod control plane for one Slurm cluster, so that its clients can be tried without AWS.

A scenario says what the cluster is at the start and what happens to it. Since this API is only ever read, nothing that
a client does can change the course of things: `course.play` works out every state that the cluster will go through
before the first request comes, and a request is answered by looking up the state of its moment.

    scenario.py    what a scenario is, and the format of its file
    reader.py      scenario files -> scenarios
    state.py       what a cluster is at one moment
    course.py      how it changes: the state machine of groups, instances and operations
    requests.py    what a request may say
    pages.py       lists in pages
    answers.py     state -> the shapes of the API
    server.py      JSON 1.1 over HTTP
    follow.py      keeps a real Slurm in step with the instances
"""
