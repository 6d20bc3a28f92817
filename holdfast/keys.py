"""The keys of run memory under a public name: build them with these functions."""

from holdfast.memories.run.keys import input as input
from holdfast.memories.run.keys import kind_of as kind_of
from holdfast.memories.run.keys import shared as shared
from holdfast.memories.run.keys import split as split
from holdfast.memories.run.keys import step as step
from holdfast.memories.run.keys import task as task
