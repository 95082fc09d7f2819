"""Sends one mail: a process of its own, so that a mail server that hangs can be left. Reads JSON from stdin."""

import json
import smtplib
import ssl
import sys
from email.message import EmailMessage
from pathlib import Path
from typing import Any

LINE_S = 10.0


def main() -> None:
    """Send what is asked for; what goes wrong is the last line on stderr."""
    request: dict[str, Any] = json.load(sys.stdin)
    mail = request["mail"]
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = mail["sender"], request["to"], request["subject"]
    message.set_content(request["text"])
    with connect(mail) as line:
        if mail["user"] is not None:
            line.login(mail["user"], Path(mail["password_file"]).read_text().strip())
        line.send_message(message)


def connect(mail: dict[str, Any]) -> smtplib.SMTP:
    """A line to the mail server, as safe as it was asked for."""
    if mail["security"] == "tls":
        return smtplib.SMTP_SSL(mail["host"], mail["port"], timeout=LINE_S, context=ssl.create_default_context())
    line = smtplib.SMTP(mail["host"], mail["port"], timeout=LINE_S)
    if mail["security"] == "starttls":
        line.starttls(context=ssl.create_default_context())
    return line


if __name__ == "__main__":
    try:
        main()
    except (OSError, smtplib.SMTPException) as error:
        sys.exit(f"{type(error).__name__}: {error}")
