from holdfast.doors.mount.process.process import Mount as Mount
from holdfast.doors.mount.process.process import mounted as mounted
