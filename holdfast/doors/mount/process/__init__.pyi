from holdfast.doors.mount.process.system import look as look
