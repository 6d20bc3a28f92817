from holdfast.library.upkeep import backup as backup
from holdfast.library.upkeep import doctor as doctor
from holdfast.library.upkeep import restore as restore
from holdfast.library.upkeep import verify as verify
