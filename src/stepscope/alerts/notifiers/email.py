"""The email notifier: SMTP, with TLS and authentication where configured."""

import contextlib
import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, Literal

import msgspec

from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.registry import convert
from stepscope.model.errors import ConfigError, Reject, Retry


class Email(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"sender": "from"}):
    """The server, the sender and the recipients."""

    host: str
    to: list[str]
    sender: str = "stepscope@localhost"
    port: int = 0
    """0: 587 with STARTTLS, 465 with TLS, 25 without."""
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = ""
    timeout: float = 20.0

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Email":
        """Read options; the password is never shown."""
        given = dict(options)
        if isinstance(given.get("to"), str):
            given["to"] = [each.strip() for each in given["to"].split(",") if each.strip()]
        made = convert(given, cls)
        if not made.host or any(each.isspace() for each in made.host):
            raise ConfigError("host must be the name of a mail server")
        if not made.to or not all("@" in each and each.isprintable() for each in (*made.to, made.sender)):
            raise ConfigError("`to` and `from` must be addresses such as me@example.org")
        if not 0 <= made.port < 65536:
            raise ConfigError("port must be a number from 1 to 65535")
        if made.password and made.tls == "none":
            raise ConfigError("a password needs TLS: set tls to starttls or tls")
        return made

    @property
    def place(self) -> str:
        """The server and the addresses."""
        return f"{', '.join(self.to)} by way of {self.host}"

    def open(self) -> "Email":
        """Return the notifier; each message has a connection of its own: mail servers close idle ones."""
        return self

    def send(self, notification: Notification) -> None:
        """Send a mail to everybody."""
        message = self._message(notification)
        try:
            with self._connected() as server:
                refused = server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal(error.recipients) from None
        except smtplib.SMTPResponseException as error:
            reply = f"SMTP {error.smtp_code}: {_text(error.smtp_error)}"
            if 400 <= error.smtp_code < 500:
                raise Retry(reply) from None
            raise Reject(reply, ()) from None
        except ssl.SSLError as error:
            raise Retry(f"TLS: {error.reason or error}") from None
        except smtplib.SMTPNotSupportedError as error:
            raise Reject(f"the server does not support this: {error}", ()) from None
        except (OSError, smtplib.SMTPException) as error:
            raise Retry(f"{self.host}: {type(error).__name__}: {error}") from None
        if refused:
            raise _refusal(refused)

    def close(self) -> None:
        """Nothing is open between two messages."""

    @contextlib.contextmanager
    def _connected(self) -> Any:
        port = self.port or {"starttls": 587, "tls": 465, "none": 25}[self.tls]
        context = ssl.create_default_context() if self.tls != "none" else None
        made = (
            smtplib.SMTP_SSL(self.host, port, timeout=self.timeout, context=context)
            if self.tls == "tls"
            else smtplib.SMTP(self.host, port, timeout=self.timeout)
        )
        with made as server:
            if self.tls == "starttls":
                server.starttls(context=context)
            if self.user:
                server.login(self.user, self.password)
            yield server

    def _message(self, notification: Notification) -> EmailMessage:
        made = EmailMessage()
        made["Subject"] = f"[stepscope] {_line(notification.title)}"[:250]
        made["From"], made["To"] = self.sender, ", ".join(self.to)
        made["X-Stepscope-Status"] = notification.status
        made["X-Stepscope-Group"] = _line(notification.group)[:200].encode("ascii", "replace").decode()
        link = f"\n\n{notification.url}" if notification.url else ""
        made.set_content(f"{notification.text}\n\nRun: {notification.run}\nProject: {notification.project}{link}\n")
        return made


def _refusal(refused: Mapping[str, tuple[int, bytes]]) -> Retry | Reject:
    """Return the error for rejected recipients: Retry if the server rejected all of them temporarily."""
    reply = "; ".join(f"{who}: {code} {_text(text)}" for who, (code, text) in list(refused.items())[:3])
    if all(400 <= code < 500 for code, _ in refused.values()):
        return Retry(reply)
    return Reject(reply, ())


def _text(reply: Any) -> str:
    return reply.decode("utf-8", "replace")[:200] if isinstance(reply, bytes) else str(reply)[:200]


def _line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
