"""Texts and data in which programs write secrets. `S` stands for the secret; what is beside the secret stays."""

import json

S = "hunter2hunter2"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

TEXTS = {
    "URL without a user": f"redis://:{S}@host:6379/0",
    "URL, a password with an @": f"postgres://bob:p@{S}@host/db",
    "URL": f"see https://bob:{S}@host/x for more",
    "INI": f"[default]\naws_secret_access_key = {S}/x\nregion = eu-central-1",
    "INI in columns": f"aws_secret_access_key       = {S}\nregion                      = eu-central-1",
    "TOML": f'password = "{S}"\nuser = "bob"',
    "TOML, single quotes": f"api_token = '{S}'",
    "TOML, three quotes": f'password = """{S}"""\nuser = "bob"',
    "HCL": f'  password     = "{S}"\n  username     = "bob"',
    "Azure": f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={KEY};EndpointSuffix=core.windows.net",
    "Azure, a bus": f"Endpoint=sb://x.net/;SharedAccessKeyName=Root;SharedAccessKey={S};EntityPath=q",
    "connection string": f"Server=x;User Id=sa;Password={S};",
    "YAML": f"user: bob\npassword: {S}\nport: 5432",
    "YAML block": f"password: |\n  {S}\n  more{S}\nuser: bob",
    "YAML block, folded": f"db:\n  password: >-\n    {S}\n  user: bob",
    "YAML sequence": f"passwords:\n  - {S}\n  - other{S}\nuser: bob",
    "YAML pair": f"env:\n- name: DB_PASSWORD\n  value: {S}\n- name: PORT\n  value: 5432",
    "YAML pair, quoted": f'- name: "DB_PASSWORD"\n  value: "{S}"',
    "XML element": f"<config><user>bob</user><password>{S}</password></config>",
    "XML element with a prefix": f"<ns:password>{S}</ns:password>",
    "XML data": f"<password><![CDATA[{S}]]></password>",
    "XML attributes": f'<add key="password" value="{S}"/><add key="port" value="5432"/>',
    "PGP": f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{S}\n-----END PGP PRIVATE KEY BLOCK-----\nbye",
    "PEM": f"-----BEGIN EC PRIVATE KEY-----\n{S}\n-----END EC PRIVATE KEY-----\nbye",
    "JSON pair of fields": json.dumps({"name": "DB_PASSWORD", "value": S, "more": 1}),
    "JSON pair of fields, turned": json.dumps({"value": S, "name": "DB_PASSWORD", "more": 1}),
    "JSON pairs": json.dumps([["Authorization", S], ["Accept", "text/html"]]),
    "JSON list": json.dumps({"passwords": [S, S], "user": "bob"}),
    "JSON": json.dumps({"api_key": S, "user": "bob"}),
    "tuples": repr([("password", S), ("user", "bob")]),
    "words": json.dumps(["mysql", "--password", S, "-u", "root"]),
    "command line": f"mysql --password {S} -u root",
    "command line, quoted": f"mysql --password '{S}' -u root",
    "command line, one word": f"mysql --password={S} -u root",
    "curl": f"curl -u bob:{S} http://host/",
    "environment": f"export DB_PASSWORD={S}; run",
    "properties": f"spring.datasource.password={S}\nspring.datasource.username=bob",
    "SQL, role": f"CREATE USER bob WITH PASSWORD '{S}' VALID UNTIL 'infinity'",
    "SQL, identified": f"CREATE USER bob IDENTIFIED BY '{S}';",
    "header": f"GET / HTTP/1.1\r\nAuthorization: Token {S}\r\nAccept: */*",
}

DATA = {
    "pairs": [["Authorization", S], ["X-Api-Key", S]],
    "pair": ["password", S],
    "fields": [{"name": "DB_PASSWORD", "value": S}, {"name": "PORT", "value": "5432"}],
    "fields of CloudFormation": [{"ParameterKey": "DBPassword", "ParameterValue": S}],
    "fields of a header": {"key": "Authorization", "value": S, "enabled": True},
    "list": {"passwords": [S, S], "user": "bob"},
    "list in another case": {"apiKeys": (S,)},
    "words": ["mysql", "--password", S, "-u", "root"],
    "words of curl": ["curl", "-u", f"bob:{S}", "http://host/"],
    "prefix": {"DBPASSWORD": S, "storageAccountKey": S},
    "number": {"name": "password", "value": 123456},
}

ORDINARY = (
    "if password == stored: return token.strip()  # the secret of them",
    "password = getpass()\ntoken = response.token\napi_key = os.environ['API_KEY']\nsecret = None",
    '{"required": ["password", "email"], "properties": {"user": {"type": "string"}}}',
    "usage: tool [--password PASSWORD] [--api-key KEY] [--token-file FILE]; --password is required",
    "The passwords: three of them. Secrets:\n- eat well\n- sleep long\n",
    "The token: a word. Key: value pairs. Access key to success. The password is long.",
    "<td>password</td><token>\n</token><keys>3</keys>",
    "docker run -u 1000:1000 image; curl -u",
    '{"name": "color", "value": "red"}, {"name": "tokens", "value": 17}, {"input_tokens": 5, "max_tokens": 100}',
    "| password: | x |\n| secret | y |\n",
    "primary_key = order_id; foreign_key: customer_id; sort_key=name; keyboard = qwerty123456",
    "GET /v1/runs?limit=50&cursor=abcdef123456 http://host:8080/a@b",
)
