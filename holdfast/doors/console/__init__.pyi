from holdfast.doors.console.conversation import ChatRequest as ChatRequest
from holdfast.doors.console.conversation import ChatTurn as ChatTurn
