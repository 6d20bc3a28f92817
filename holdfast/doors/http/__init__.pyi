from holdfast.doors.http.request import MakeSubApp as MakeSubApp
from holdfast.doors.http.server import serve as serve
from holdfast.runtime import EngineHistory as EngineHistory
from holdfast.runtime import Network as Network
from holdfast.runtime import NetworkRun as NetworkRun
from holdfast.runtime import RunEvent as RunEvent
from holdfast.runtime import UserMessage as UserMessage
