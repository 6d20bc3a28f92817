"""The errors of Holdfast under a public name; the tree is drawn where they are made."""

from holdfast.ground.errors import Conflict as Conflict
from holdfast.ground.errors import ContentGone as ContentGone
from holdfast.ground.errors import Corrupt as Corrupt
from holdfast.ground.errors import CursorExpired as CursorExpired
from holdfast.ground.errors import EngineFault as EngineFault
from holdfast.ground.errors import HeadVersion as HeadVersion
from holdfast.ground.errors import HoldfastError as HoldfastError
from holdfast.ground.errors import IdempotencyMismatch as IdempotencyMismatch
from holdfast.ground.errors import InvalidInput as InvalidInput
from holdfast.ground.errors import MissingExtra as MissingExtra
from holdfast.ground.errors import NotAuthenticated as NotAuthenticated
from holdfast.ground.errors import NotFound as NotFound
from holdfast.ground.errors import NotPermitted as NotPermitted
from holdfast.ground.errors import PathTaken as PathTaken
from holdfast.ground.errors import PreconditionFailed as PreconditionFailed
from holdfast.ground.errors import Refused as Refused
from holdfast.ground.errors import ScopeDenied as ScopeDenied
from holdfast.ground.errors import StoreArchived as StoreArchived
from holdfast.ground.errors import StoreFull as StoreFull
from holdfast.ground.errors import TooLarge as TooLarge
from holdfast.ground.errors import ToolNameTaken as ToolNameTaken
from holdfast.ground.errors import ToolRefused as ToolRefused
from holdfast.ground.errors import TooNew as TooNew
from holdfast.ground.errors import Unavailable as Unavailable
from holdfast.ground.errors import Unsupported as Unsupported
