"""Brokers that know users, rights and certificates, for tests.

Each has a plain port and one with TLS that wants a certificate of its client, a user `USER` without any right, and
`allow`, which gives it rights. The brokers of `tests.servers` do the rest.
"""

from __future__ import annotations

import json
import queue
import secrets
import socket
import threading
import urllib.request
from base64 import b64encode
from hashlib import pbkdf2_hmac
from typing import Any, ClassVar, Final
from xml.sax.saxutils import quoteattr

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.servers.activemq import ActiveMq, java_environment, jvm
from tests.servers.activemq import class_path as activemq_class_path
from tests.servers.artemis import Artemis, artemis_jars
from tests.servers.certificates import PASSWORD as STORE_PASSWORD
from tests.servers.certificates import Certificates
from tests.servers.mosquitto import Mosquitto, mosquitto_files
from tests.servers.rabbitmq import RabbitMq

USER, PASSWORD = "worker", "s3cret-of-the-worker"
ADMIN: Final = "admin"
ANSWER_S: Final = 20.0


class SecuredMosquitto(Mosquitto):
    """
    A mosquitto with its plugin for dynamic security. A right is a pair: a type of ACL, and topics.

    See https://mosquitto.org/documentation/dynamic-security/ for the types, such as ``subscribePattern``.
    """

    more_ports = 1
    schemes: ClassVar = ("mqtt", "mqtts")

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        self._certificates = certificates
        self._rights: set[tuple[str, str]] = set()

    def command(self) -> list[str]:
        file = self.data / "security.json"
        if not file.exists():
            file.write_text(json.dumps(_mqtt_security()), "utf-8")
            file.chmod(0o666)
        plugin = next(mosquitto_files().root.glob("usr/lib/*/mosquitto_dynamic_security.so"))
        tls = self._certificates
        self.settings = {
            "allow_anonymous": "false",
            "plugin": str(plugin),
            "plugin_opt_config_file": str(file),
            "listener": f"{self.ports[0]} 127.0.0.1",
            "cafile": tls["ca.pem"],
            "certfile": tls["server.pem"],
            "keyfile": tls["server.key"],
            "require_certificate": "true",
        }
        return super().command()

    def allow(self, *rights: tuple[str, str]) -> None:
        """Give the user rights, while the broker runs."""
        self._rights |= {*rights}
        acls = [{"acltype": kind, "topic": topics, "allow": True} for kind, topics in sorted(self._rights)]
        commands = [{"command": "modifyRole", "rolename": USER, "acls": acls}]
        client = Client(CallbackAPIVersion.VERSION2, client_id="admin")
        client.username_pw_set(ADMIN, PASSWORD)
        granted, answers = threading.Event(), queue.Queue[bytes]()
        client.on_subscribe = lambda *_: granted.set()
        client.on_message = lambda _, __, message: answers.put(bytes(message.payload))
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        client.subscribe("$CONTROL/dynamic-security/v1/response", qos=1)
        assert granted.wait(ANSWER_S)
        client.publish("$CONTROL/dynamic-security/v1", json.dumps({"commands": commands}), qos=1)
        answer = json.loads(answers.get(timeout=ANSWER_S))
        client.disconnect()
        client.loop_stop()
        assert not any("error" in one for one in answer["responses"]), answer

    def forget(self) -> None:
        """Take all rights from the user."""
        self._rights.clear()
        self.allow()

    @property
    def tls_port(self) -> int:
        """The port with TLS."""
        return self.ports[0]


def _mqtt_security() -> dict[str, Any]:
    """A user without any right, and one who gives rights."""
    acls = [
        {"acltype": kind, "topic": topics, "allow": True}
        for kind in ("publishClientSend", "publishClientReceive", "subscribePattern")
        for topics in ("#", "$CONTROL/dynamic-security/#")
    ]
    return {
        "defaultACLAccess": dict.fromkeys(("publishClientSend", "subscribe"), False)
        | dict.fromkeys(("publishClientReceive", "unsubscribe"), True),
        "clients": [_mqtt_user(USER), _mqtt_user(ADMIN)],
        "roles": [{"rolename": USER, "acls": []}, {"rolename": ADMIN, "acls": acls}],
    }


def _mqtt_user(name: str) -> dict[str, Any]:
    salt = secrets.token_bytes(12)
    hashed = pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 101)
    return {"username": name, "password": b64encode(hashed).decode(), "salt": b64encode(salt).decode(),
            "iterations": 101, "roles": [{"rolename": name}]}  # fmt: skip


class SecuredRabbitMq(RabbitMq):
    """A RabbitMQ with its HTTP interface for rights. A right is a pair: configure, write or read, and queues."""

    more_ports = 7
    schemes: ClassVar = ("amqp", "amqps")

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(plugins=("rabbitmq_stream", "rabbitmq_management"))
        self._certificates = certificates
        self._rights = {"configure": "^$", "write": "^$", "read": "^$"}

    def command(self) -> list[str]:
        tls = self._certificates
        self.settings = {
            "listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
            "stream.listeners.ssl.1": f"127.0.0.1:{self.stream_tls_port}",
            "ssl_options.cacertfile": tls["ca.pem"],
            "ssl_options.certfile": tls["server.pem"],
            "ssl_options.keyfile": tls["server.key"],
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "true",
            "management.tcp.ip": "127.0.0.1",
            "management.tcp.port": str(self.ports[3]),
        }
        return super().command()

    def allow(self, *rights: tuple[str, str]) -> None:
        """Give the user rights, while the broker runs."""
        self._rights |= dict(rights)
        self._put(f"users/{USER}", {"password": PASSWORD, "tags": ""})
        self._put(f"permissions/%2F/{USER}", self._rights)

    def try_it(self) -> None:
        super().try_it()
        self.forget()

    def forget(self) -> None:
        """Take all rights from the user."""
        self._rights = {"configure": "^$", "write": "^$", "read": "^$"}
        self.allow()

    def _put(self, path: str, what: dict[str, str]) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[3]}/api/{path}",
            data=json.dumps(what).encode(),
            method="PUT",
            headers={"Authorization": "Basic " + b64encode(f"cues:{self.password}".encode()).decode()},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S):
            pass

    @property
    def tls_port(self) -> int:
        """The port with TLS."""
        return self.ports[2]

    @property
    def stream_tls_port(self) -> int:
        """The port of the stream protocol with TLS."""
        return self.ports[4]


class SecuredActiveMq(ActiveMq):
    """An ActiveMQ Classic with users. A right is a pair: read, write or admin, and queues. New ones need a restart."""

    more_ports = 1
    schemes: ClassVar = ("stomp", "stomps")

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        self._certificates = certificates
        self._rights: dict[str, dict[str, str]] = {}

    def command(self) -> list[str]:
        tls = self._certificates
        stores = {"keyStore": f"file:{tls['server.p12']}", "keyStorePassword": STORE_PASSWORD, "keyStoreType": "PKCS12",
                  "trustStore": f"file:{tls['trust.p12']}", "trustStorePassword": STORE_PASSWORD,
                  "trustStoreType": "PKCS12"}  # fmt: skip
        entries = [{"queue": ">", "read": ADMIN, "write": ADMIN, "admin": ADMIN},
                   {"topic": ">", "read": ADMIN, "write": ADMIN, "admin": ADMIN},
                   {"topic": "ActiveMQ.Advisory.>", "read": "all", "write": "all", "admin": "all"}]  # fmt: skip
        entries += [{"queue": queues, "read": ADMIN, "write": ADMIN, "admin": ADMIN, **rights}
                    for queues, rights in self._rights.items()]  # fmt: skip
        users = [{"username": USER, "password": PASSWORD, "groups": f"all,{USER}"},
                 {"username": ADMIN, "password": PASSWORD, "groups": f"all,{ADMIN},{USER}"}]  # fmt: skip
        file = self.directory / "activemq.xml"
        file.write_text(_ACTIVEMQ.format(
            data=self.data, port=self.port, tls_port=self.tls_port, stores=_attributes(stores),
            users="".join(f"<authenticationUser {_attributes(one)}/>" for one in users),
            entries="".join(f"<authorizationEntry {_attributes(one)}/>" for one in entries),
        ), "utf-8")  # fmt: skip
        return [*jvm("ActiveMQ", "128m"), "-cp", activemq_class_path(secured=True), MAIN, "start", f"xbean:file:{file}"]

    def allow(self, *rights: tuple[str, str]) -> None:
        """Give the user rights; the broker starts again."""
        for right, queues in rights:
            self._rights.setdefault(queues, {})[right] = f"{ADMIN},{USER}"
        if self.running:
            self.stop()
            self.start()

    def try_it(self) -> None:
        super().try_it()
        socket.create_connection(("127.0.0.1", self.tls_port), ANSWER_S).close()

    def forget(self) -> None:
        """Take all rights from the user; the broker starts again if there were any."""
        if self._rights:
            self._rights.clear()
            self.allow()

    @property
    def tls_port(self) -> int:
        """The port with TLS."""
        return self.ports[0]


MAIN = "org.apache.activemq.console.command.ShellCommand"
_ACTIVEMQ = """<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.springframework.org/schema/beans
 http://www.springframework.org/schema/beans/spring-beans.xsd http://activemq.apache.org/schema/core
 http://activemq.apache.org/schema/core/activemq-core.xsd">
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="tests" useJmx="false" dataDirectory="{data}"
 schedulePeriodForDestinationPurge="0">
<plugins><simpleAuthenticationPlugin><users>{users}</users></simpleAuthenticationPlugin>
<authorizationPlugin><map><authorizationMap><authorizationEntries>{entries}</authorizationEntries></authorizationMap></map>
</authorizationPlugin></plugins>
<sslContext><sslContext {stores}/></sslContext>
<transportConnectors><transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
<transportConnector name="stomps" uri="stomp+ssl://127.0.0.1:{tls_port}?needClientAuth=true"/></transportConnectors>
</broker></beans>
"""


def _attributes(given: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(value)}" for name, value in given.items())


class SecuredArtemis(Artemis):
    """
    An Artemis with users. A right is a pair: a type of permission, such as ``consume``, and queues.

    By AMQP a certificate of a client is a login, too: that of ``client.pem`` is the user `USER`.
    """

    more_ports = 4
    schemes: ClassVar = ("stomp", "stomps")

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(settings={"security-enabled": "true", "security-invalidation-interval": "0"})
        self._certificates = certificates
        self._rights: list[tuple[str, str]] = []

    def command(self) -> list[str]:
        etc = self.directory / "etc"
        etc.mkdir(exist_ok=True)
        (etc / "users.properties").write_text(f"{USER}={PASSWORD}\n{ADMIN}={PASSWORD}\n", "utf-8")
        (etc / "certificates.properties").write_text(f"{USER}=CN=client\n", "utf-8")
        self._write_roles()
        (etc / "login.config").write_text(_LOGIN, "utf-8")
        (etc / "bootstrap.xml").write_text(_BOOTSTRAP.format(file=etc / "broker.xml"), "utf-8")
        (etc / "management.xml").write_text(
            '<management-context xmlns="http://activemq.apache.org/schema"/>\n', "utf-8"
        )
        super().command()  # writes broker.xml
        options = [f"-Dartemis.{name}={self.directory}" for name in ("instance", "home")]
        options += [f"-Dartemis.instance.etc={etc}", f"-Dartemis.instance.etc.uri=file:{etc}/"]
        options += [f"-Djava.security.auth.login.config={etc / 'login.config'}", "-Dlog4j2.disableJmx=true"]
        return [*jvm("Artemis", "192m"), *options, "-cp", f"{artemis_jars()}/*", _CLI, "run"]

    def acceptors(self) -> str:
        """Two more, with TLS."""
        stomp, amqp = self._tls("stomps", self.tls_port, "STOMP"), self._tls("amqps", self.amqp_tls_port, "AMQP")
        mechanisms = "saslMechanisms=PLAIN,EXTERNAL"
        return f"{super().acceptors()}{stomp}{amqp.replace('protocols=AMQP', f'protocols=AMQP;{mechanisms}')}"

    def _tls(self, name: str, port: int, protocol: str) -> str:
        tls = self._certificates
        options = ";".join(
            f"{name}={value}"
            for name, value in {
                "protocols": protocol, "sslEnabled": "true", "needClientAuth": "true", "keyStoreType": "PKCS12",
                "keyStorePath": tls["server.p12"], "keyStorePassword": STORE_PASSWORD, "trustStoreType": "PKCS12",
                "trustStorePath": tls["trust.p12"], "trustStorePassword": STORE_PASSWORD,
            }.items()
        )  # fmt: skip
        return f'<acceptor name="{name}">tcp://127.0.0.1:{port}?{options}</acceptor>'

    def security(self) -> str:
        """Each right is a role of its own."""
        kinds = ("send", "consume", "browse", "createAddress", "createDurableQueue", "createNonDurableQueue",
                 "deleteDurableQueue", "deleteNonDurableQueue", "deleteAddress")  # fmt: skip
        permissions = "".join(f'<permission type="{kind}" roles="{ADMIN},{kind}"/>' for kind in kinds)
        return f'<security-settings><security-setting match="#">{permissions}</security-setting></security-settings>'

    def allow(self, *rights: tuple[str, str]) -> None:
        """Give the user rights, while the broker runs; they hold for all queues."""
        self._rights += rights
        if self.running:
            self._write_roles()

    def try_it(self) -> None:
        super().try_it()
        socket.create_connection(("127.0.0.1", self.tls_port), ANSWER_S).close()

    def forget(self) -> None:
        """Take all rights from the user."""
        self._rights.clear()
        self._write_roles()

    def _write_roles(self) -> None:
        """The broker reads the file again when someone logs in."""
        roles = "".join(f"{right}={USER}\n" for right, _ in self._rights)
        (self.directory / "etc" / "roles.properties").write_text(f"{ADMIN}={ADMIN}\n{roles}", "utf-8")

    def environment(self) -> dict[str, str]:
        return java_environment(self)

    @property
    def tls_port(self) -> int:
        """The port with TLS."""
        return self.ports[1]

    @property
    def amqp_tls_port(self) -> int:
        """The port of AMQP 1.0 with TLS."""
        return self.ports[2]


_CLI = "org.apache.activemq.artemis.cli.Artemis"
_BOOTSTRAP = """<broker xmlns="http://activemq.apache.org/schema">
<jaas-security domain="activemq" certificate-domain="certificates"/>
<server configuration="file:{file}"/></broker>
"""
_LOGIN = """activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required reload=true
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
};
certificates {
  org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule required reload=true
    org.apache.activemq.jaas.textfiledn.user="certificates.properties"
    org.apache.activemq.jaas.textfiledn.role="roles.properties";
};
"""
