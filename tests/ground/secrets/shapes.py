"""Texts that hold a secret, by its kind. What must not be kept stands between ⟦ and ⟧.

None of these was ever given out. They are put together here, so that no scanner takes this file
for a leak.
"""

from base64 import urlsafe_b64encode

LETTERS = "aB3dE5gH7jK9mN2pQ4rS6tU8vW1xY0zCfFhJkLnPqRsTwVyXbAcDeGiMoOuZ"
HEX = "0123456789abcdef" * 8
DIGITS = "4827193650" * 4


def token(length: int) -> str:
    """Return letters of both cases and digits."""
    return (LETTERS * (length // len(LETTERS) + 1))[:length]


def part(text: str) -> str:
    """Return *text* as a part of a JSON web token."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def armoured(label: str, dashes: str = "-----") -> str:
    """Return a key in armour."""
    edge = f"{{}} {label}"
    body = "\n".join(token(64) for _ in range(3))
    return "\n".join(
        (
            f"{dashes}{edge.format('BEGIN')}{dashes}",
            body,
            f"{dashes}{edge.format('END')}{dashes}",
        )
    )


HEAD, CLAIMS, SPACED = '{"alg":"HS256"}', '{"sub":"ada"}', '{ "alg": "none" }'
JWT = f"{part(HEAD)}.{part(CLAIMS)}.{token(43)}"
SPACED_JWT = f"{part(SPACED)}.{part('{}')}."
PHRASE = "abandon ability able about above absent absorb abstract absurd abuse access accident"
LONG_PHRASE = (
    "zoo wrong wreck wrap worth world work word wool wonder woman wolf"
    " wish wise winter wine window win wild width wide whip whisper where"
)

VENDOR_KEYS = [
    f"OpenAI: ⟦sk-{token(48)}⟧",
    f"use ⟦sk-proj-{token(24)}_{token(24)}-{token(12)}⟧ for now",
    f"⟦sk-ant-api03-{token(60)}-{token(20)}AA⟧",
    f"⟦sk-or-v1-{HEX[:64]}⟧",
    *(f"here: ⟦gh{kind}_{token(36)}⟧." for kind in "pousr"),
    f"⟦github_pat_{token(22)}_{token(59)}⟧",
    f"⟦glpat-{token(20)}⟧",
    *(f"⟦xox{kind}-{DIGITS[:12]}-{DIGITS[:12]}-{token(24)}⟧" for kind in "abeoprs"),
    f"⟦xapp-1-A012BCDEF-{DIGITS[:13]}-{HEX[:64]}⟧",
    f"post to https://⟦hooks.slack.com/services/T0123ABCD/B0123ABCD/{token(24)}⟧",
    *(f"⟦{kind}_{mode}_{token(24)}⟧" for kind in ("sk", "pk", "rk") for mode in ("live", "test")),
    f"⟦whsec_{token(32)}⟧",
    "aws: ⟦AKIA" + "IOSFODNN7EXAMPLE⟧",
    "aws: ⟦ASIA" + "Y34FZKBOKMUTVV7A⟧",
    f"maps key ⟦AIza{token(35)}⟧",
    f"⟦ya29.{token(60)}⟧",
    f"⟦GOCSPX-{token(28)}⟧",
    f"⟦hf_{token(34)}⟧",
    f"Holdfast says ⟦hf_{token(20)}-{token(21)}_⟧",
    f"⟦npm_{token(36)}⟧",
    f"⟦pypi-AgEIcHlwaS5vcmc{token(60)}⟧",
    f"⟦SG.{token(22)}.{token(43)}⟧",
    f"⟦SK{HEX[:32]}⟧",
    f"⟦dop_v1_{HEX[:64]}⟧",
    *(f"⟦shp{kind}_{HEX[:32]}⟧" for kind in ("at", "ca", "pa", "ss")),
    f"bot ⟦{DIGITS[:10]}:AA{token(33)}⟧",
    f"bot ⟦MT{token(22)}.{token(6)}.{token(38)}⟧",
    f"⟦hvs.{token(90)}⟧",
    f"⟦dapi{HEX[:32]}⟧",
    f"⟦AGE-SECRET-KEY-1{token(58).upper()}⟧",
    f"⟦gsk_{token(52)}⟧",
]

HEADERS = [
    f"Authorization: Bearer ⟦{token(24)}⟧",
    "authorization: basic ⟦YWRhOmh1bnRlcjI=⟧",
    '{"Authorization": "Token ⟦9944b09199c62bcf9418ad846dd0e4bb⟧"}',
    f"curl -H 'Authorization: Custom ⟦{token(20)}⟧' https://example.com",
    "Authorization: ⟦a1b2c3d4e5f6⟧",
    f"Authorization: AWS4-HMAC-SHA256 ⟦Credential=x/20261122/eu, Signature={HEX[:64]}⟧",
    f"it answers to Bearer ⟦{token(20)}⟧ only",
    "send Basic ⟦dXNlcjpwYXNzd29yZA==⟧ along",
    f"X-Api-Key: ⟦{token(20)}⟧",
    "x-auth-token: ⟦9f8e7d6c5b⟧",
    f"Cookie: theme=dark; sessionid=⟦{token(26)}⟧; lang=en",
    f"Set-Cookie: connect.sid=⟦{token(40)}⟧; Path=/; HttpOnly",
]

ARMOUR = [
    *(
        f"⟦{armoured(f'{label}PRIVATE KEY')}⟧"
        for label in ("", "RSA ", "EC ", "DSA ", "ENCRYPTED ", "OPENSSH ", "ANY NEW ")
    ),
    f"key:\n⟦{armoured('PGP PRIVATE KEY BLOCK')}⟧\nbye",
    f"⟦{armoured('SSH2 ENCRYPTED PRIVATE KEY ', '----').replace('BEGIN', ' BEGIN')}⟧",
    "⟦" + armoured("PRIVATE KEY").replace("\n", "\\n") + "⟧",
    f"⟦-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{token(64)}⟧",
    (
        "⟦PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: ada\n"
        f"Private-Lines: 1\n{token(48)}\nPrivate-MAC: {HEX[:64]}⟧"
    ),
]

TOKENS = [f"the token of now: ⟦{JWT}⟧", f"jwt_⟦{JWT}⟧", f"⟦{SPACED_JWT}⟧"]

ASSIGNMENTS = [
    "DB_PASSWORD=⟦abcd⟧",
    "export SECRET=⟦swordfish⟧",
    "password = ⟦hunter2⟧",
    'passwd="⟦correct horse⟧"',
    "pwd='⟦letmein⟧'",
    "passphrase => ⟦opensesame⟧",
    "passcode := ⟦open1234⟧",
    '"client_secret": "⟦notverymixed⟧"',
    "openaiApiKey: ⟦abc123def⟧",
    "api-key: ⟦Zebra-Crossing⟧",
    "api_key: str = '⟦zebra-crossing⟧'",
    "MY.ACCESS.KEY=⟦zebra⟧",
    "awsSecretKey = `⟦abcdefgh⟧`",
    "private_key: '⟦0123456789⟧'",
    "credentials: ⟦ada/hunter2⟧",
    "auth_key=⟦qwertyuiop⟧",
    "connection_string: ⟦Server=db;Uid=ada;Key=x⟧",
    "ConnString=⟦Server=db⟧",
    "mysqldump --password ⟦hunter⟧ -u root",
    "mysqldump --db-password=⟦hunter⟧",
    "  password: ⟦hunter2⟧  # yaml",
    "**Password:** ⟦hunter2⟧",
    "| password | ⟦hunter2⟧ |",
    "<password>⟦hunter2⟧</password>",
    "password1=⟦hunter⟧",
    'os.environ["DB_PASSWORD"] = "⟦hunter⟧"',
    "{'token': '⟦abcdef⟧'}",
    '{\\"password\\": \\"⟦abcdef⟧\\"}',
    "dbpassword=⟦hunter⟧",
    "Here is my password:\n⟦hunter2⟧",
    'password="⟦pa\\"ss⟧"',
]

PROSE = [
    "My password is ⟦hunter2⟧.",
    "my wifi password is ⟦dragonfly⟧",
    "The passphrase is “⟦correct horse battery⟧”",
    "our PIN is ⟦4821⟧, do not tell",
    "the PIN of my card was ⟦482193⟧",
    "The api key was ⟦zebra42⟧ once",
    "Ada's token is ⟦k0ala⟧",
    "your passcode: ⟦mongoose⟧",
    "my secret is ⟦Tr0ub4dor&3⟧!",
    "I changed my password to ⟦hunter2⟧ yesterday",
    "log in with password ⟦hunter2⟧",
    "the pin ⟦4821⟧ opens it",
    "my password is now ⟦hunter2⟧",
    "The password for the staging server is ⟦hunter2⟧",
    "my password is ⟦ILOVEYOU⟧",
    "my PIN's ⟦4821⟧",
    "the password that I use there is ⟦hunter2⟧",
    "my passphrase is ⟦correct-horse-battery-staple⟧ ok",
]

CODES = [
    "Your verification code is ⟦482193⟧",
    "⟦482193⟧ is your verification code",
    "security code: ⟦4821⟧",
    "one-time passcode ⟦482 193⟧",
    "login code ⟦48219⟧",
    "Authentication code ⟦482193⟧ expires soon",
    "2FA code: ⟦482-193⟧",
    "OTP ⟦482193⟧",
    "use ⟦G-482193⟧ as your Google verification code",
    "recovery code ⟦9f2k-77qd⟧",
    "backup codes: ⟦9f2k-77qd 8h3j-22lk⟧",
    "Your sign-in code is ⟦A7F3K9⟧",
]

URLS = [
    "postgres://ada:⟦hunter2⟧@db.example.com/app",
    "postgresql+psycopg://ada:⟦p/w⟧@localhost:5432/app",
    "redis://:⟦hunter2⟧@cache:6379/0",
    "mongodb+srv://ada:⟦p@ss⟧@cluster0.example.net/app",
    f"https://⟦{token(24)}⟧@example.com/ada/repo.git",
    f"https://bucket.s3.amazonaws.com/a?X-Amz-Signature=⟦{HEX[:64]}⟧",
    "https://blob.example.net/a?sv=2022&sig=⟦Zm9vYmFyYmF6cXV4%3D⟧",
    "https://api.example.com/me?access_token=⟦abcdefgh12⟧",
]

CARDS = [
    "card ⟦4111 1111 1111 1111⟧ exp 12/29",
    "⟦4111111111111111⟧",
    "⟦4111-1111-1111-1111⟧",
    "⟦5555 5555 5555 4444⟧",
    "amex ⟦3782 822463 10005⟧",
    "⟦6011111111111117⟧",
    "⟦3530111333300000⟧",
    "⟦30569309025904⟧",
    "⟦4222222222222⟧",
    "order 12345 card ⟦4111 1111 1111 1111⟧",
]

PHRASES = [
    f"my seed: ⟦{PHRASE}⟧",
    f"⟦{PHRASE.upper()}⟧",
    f"⟦{PHRASE.replace(' ', ', ')}⟧",
    " ".join(f"{n}. {word}" for n, word in enumerate(f"⟦{PHRASE}⟧".split(), 1)),
    f"⟦{LONG_PHRASE}⟧",
    f"⟦{PHRASE} achieve acid acoustic⟧",
    f"⟦{'abandon ' * 11}about⟧",
]

RANDOM = [
    "⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY⟧",
    f"it says ⟦{token(40)}⟧ on the back",
    f"⟦{token(30)}+/{token(30)}==⟧",
]

SHAPES: list[tuple[str, str]] = [
    (kind, text)
    for kind, texts in (
        ("vendor_key", VENDOR_KEYS),
        ("header", HEADERS),
        ("armour", ARMOUR),
        ("jwt", TOKENS),
        ("assignment", ASSIGNMENTS),
        ("prose", PROSE),
        ("one_time_code", CODES),
        ("url_credentials", URLS),
        ("card", CARDS),
        ("recovery_phrase", PHRASES),
        ("entropy", RANDOM),
    )
    for text in texts
]
