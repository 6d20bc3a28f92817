from holdfast.ground.secrets.scanner import SecretHit as SecretHit
from holdfast.ground.secrets.scanner import find as find
from holdfast.ground.secrets.scanner import looks_like_secret as looks_like_secret
from holdfast.ground.secrets.scanner import redact as redact
