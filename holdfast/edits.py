"""The edits that `memories.apply` does, under a public name."""

from holdfast.memories.stores.edits import Edit as Edit
from holdfast.memories.stores.edits import Move as Move
from holdfast.memories.stores.edits import Moved as Moved
from holdfast.memories.stores.edits import Remove as Remove
from holdfast.memories.stores.edits import Replace as Replace
from holdfast.memories.stores.edits import Save as Save
