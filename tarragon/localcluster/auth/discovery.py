"""What others need to check tokens of service accounts by themselves, as OpenID Connect has it."""

from __future__ import annotations

from typing import Any

from tarragon.localcluster.auth.accounts import ISSUER, Accounts
from tarragon.localcluster.auth.keys import ALGORITHM

Json = dict[str, Any]


def configuration(url: str) -> Json:
    """`url` is where this server is reached; the issuer is a name, behind which nothing needs to answer."""
    return {
        "issuer": ISSUER,
        "jwks_uri": f"{url}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
    }


def published_keys(accounts: Accounts) -> Json:
    return {"keys": [accounts.key.published()]}
