"""Wrong usage of each command: exit code 64, one error that names the argument, and no effect."""

import shlex
from pathlib import Path
from typing import Final

import pytest

from tests.lab import inprocess
from tests.lab.program import Program

_UUID: Final = "7a6f4f6e-6b4c-4d0e-9b1a-3f1d2c5b8e70"
_STANDS_FOR: Final = {
    "GPU": "--resource VGPU=1",
    "UUID": _UUID,
    "LONG": "x" * 256,
    "BYTES": "\udcff",
    "NINES": "9" * 5000,
    "LINES": "'two\nlines'",
}
#: Command lines, and a text that the error contains.
_WRONG: Final = r"""
sync --nonsense                               => --nonsense
sync -f xml                                   => 'xml'
sync --removal-delay=nan                      => --removal-delay
sync --removal-delay=inf                      => --removal-delay
sync --removal-delay=soon                     => --removal-delay
sync --removal-delay -1                       => --removal-delay
conformance init                              => NAME
conformance init Shelf                        => argument NAME: 'Shelf' cannot name a driver: use
driver check                                  => required
provider show                                 => PROVIDER
provider detach                               => PROVIDER
provider list --owner NOVA                    => argument --owner: owner trait 'NOVA'
provider list --owner OWNER_NOVA --forbidden OWNER_NOVA => OWNER_NOVA cannot be required
provider list --required ''                   => argument --required: '': a trait is missing
provider list --required A --required !A      => argument --required: 'A !A': A cannot be
provider list --required in:A,B --forbidden A --forbidden B => one of A and B is required
provider list --forbidden A,B                 => argument --forbidden: 'A,B'
provider reserve --reason r                   => PROVIDER
provider reserve p                            => --reason
provider reserve p --reason ''                => argument --reason: ''
provider reserve p --reason {LONG}              => argument --reason:
provider reserve p --reason r --holder ''     => argument --holder: ''
provider reserve p --reason r --until 2020-01-01 => '2020-01-01' is not in the future
provider reserve p --reason r --until 0m      => '0m' is not in the future
provider reserve p --reason r --until soon    => 'soon' is neither a time
provider reserve p --reason r --until ''      => '' is neither a time
provider reserve p --reason r --until 2031    => '2031' is neither a time
provider reserve p --reason r --until 90      => '90' is neither a time
provider reserve p --reason r --until '2 h'   => '2 h' is neither a time
provider reserve p --reason r --until -2h     => expected one argument
provider reserve p --reason r --until 999999999d => '999999999d' is neither a time
provider reserve p --reason r --until 9999-12-31T23:59-12:00 => is neither a time
candidate list                                => --flavor, --device-profile or --resource
candidate list --limit 3                      => --flavor, --device-profile or --resource
candidate list --flavor ''                    => argument --flavor: ''
candidate list --device-profile ''            => argument --device-profile: ''
candidate list --resource VGPU                => argument --resource: 'VGPU' is not CLASS=AMOUNT
candidate list --resource ''                  => argument --resource: ''
candidate list --resource =1                  => argument --resource: '=1'
candidate list --resource vgpu=1              => argument --resource: 'vgpu=1'
candidate list --resource VGPU=               => the amount of VGPU: ''
candidate list --resource VGPU=0              => the amount of VGPU: '0'
candidate list --resource VGPU=1=1            => the amount of VGPU: '1=1'
candidate list --resource VGPU=2147483648     => '2147483648'
candidate list {GPU} --resource VGPU:2          => argument --resource: VGPU occurs twice
candidate list {GPU} --required in:             => argument --required: 'in:'
candidate list {GPU} --required A,,B            => argument --required: 'A,,B'
candidate list {GPU} --required a               => argument --required: 'a'
candidate list {GPU} --required in:A,!B         => 'in:A,!B': no trait after in: can be forbidden
candidate list {GPU} --required A,!A            => argument --required: 'A,!A'
candidate list {GPU} --required A --forbidden A => argument --required: 'A !A'
candidate list --group _G {GPU} --required in:A,B --required !A,!B => --required of group _G: 'in:A
candidate list {GPU} --forbidden !A             => argument --forbidden: '!A'
candidate list {GPU} --member-of x              => argument --member-of: 'x' is not a uuid
candidate list {GPU} --member-of {UUID},          => argument --member-of: '' is not a uuid
candidate list {GPU} --not-member-of x          => argument --not-member-of: 'x' is not a uuid
candidate list {GPU} --in-tree ''               => argument --in-tree: ''
candidate list {GPU} --in-tree a --in-tree a    => argument --in-tree: occurs twice
candidate list {GPU} --owner me                 => argument --owner: owner trait 'me'
candidate list {GPU} --owner none --owner none  => argument --owner: occurs twice
candidate list {GPU} --owner none --required in:OWNER_NOVA,A => --owner: 'none': --required has
candidate list {GPU} --owner OWNER_CYBORG --required OWNER_NOVA => a provider has one owner
candidate list --group 1 {GPU} --required OWNER_CYBORG,OWNER_NOVA => argument --required of group 1
candidate list --group '' {GPU}                 => argument --group: name the group
candidate list --group a.b {GPU}                => argument --group: 'a.b'
candidate list --group 1 {GPU} --group 1        => argument --group: 1 occurs twice
candidate list {GPU} --group 1                  => argument --resource: group 1 has no resources
candidate list --required A --group 1 {GPU}     => --resource: the group without a suffix
candidate list --required A                   => argument --resource: no resources are requested
candidate list {GPU} --group-policy any         => argument --group-policy: invalid choice: 'any'
candidate list {GPU} --same-subtree 1           => argument --same-subtree: '1'
candidate list {GPU} --same-subtree 1,          => argument --same-subtree: name the group
candidate list {GPU} --same-subtree ?           => argument --same-subtree: '?'
candidate list {GPU} --root-required in:A,B     => argument --root-required: 'in:A,B'
candidate list {GPU} --root-required A --root-required !A => argument --root-required: 'A !A'
candidate list {GPU} --limit 0                  => argument --limit: '0'
candidate list {GPU} --limit all                => argument --limit: 'all'
candidate explain                             => --flavor, --device-profile or --resource
candidate explain {GPU} --group 1               => argument --resource: group 1 has no resources
candidate explain {GPU} -f csv                  => 'csv'
device program                                => PROVIDER
device program gpu                            => --image
device program --image {UUID}                   => PROVIDER
device program gpu --image my.bit             => 'my.bit'
device program gpu gpu --image {UUID}           => gpu
device program gpu --image {UUID} --function '' => --function
device program gpu --image {UUID} --function {LONG} => --function
device program gpu --image {UUID} --wait-for-idle soon => --wait-for-idle
device program gpu --image {UUID} --wait-for-idle -1   => --wait-for-idle
device program gpu --image {UUID} --wait-for-idle nan  => --wait-for-idle
device resolve                                => PROVIDER
device resolve gpu                            => --programmed
device resolve --programmed                   => PROVIDER
device resolve gpu gpu --programmed           => gpu
device resolve gpu --programmed --unchanged   => --unchanged
device resolve gpu --unchanged --function     => --function
device jobs gpu                               => gpu
device jobs -f nonsense                       => 'nonsense'
instance claim                                => --flavor
instance claim --flavor ''                    => --flavor
instance claim --flavor small --uuid 7        => '7' is not a uuid
instance claim --flavor small --project ''    => --project
instance resize {UUID}                          => --flavor
instance release                              => UUID
instance repair --release                     => UUID
instance show not-a-uuid                      => 'not-a-uuid'
instance list more                            => more
migration show                                => UUID
migration show mine                           => 'mine' is not a uuid
migration list --instance mine                => argument --instance: 'mine' is not a uuid
migration list --status adrift                => pre-migrating
migration list --type swap                    => live-migration
migration list --host ''                      => argument --host: ''
node show                                     => NODE
node show ''                                  => NODE: ''
node list --owner NOVA                        => --owner
node list --driver {LONG}                       => --driver
node list --host {BYTES}                        => \udcff
node list -f xml                              => 'xml'
service show                                  => SERVICE
service delete                                => SERVICE
service show {BYTES}                            => argument SERVICE: '\udcff' is not text
service enable {BYTES}                          => argument SERVICE: '\udcff' is not text
service disable {BYTES}                         => argument SERVICE: '\udcff' is not text
service delete {BYTES}                          => argument SERVICE: '\udcff' is not text
service list --host ''                        => --host
service list --binary {LONG}                    => --binary
service disable host-0 --reason ''            => --reason
service disable host-0 --reason {LONG}          => --reason
db upgrade 0002                               => 0002
db check -f xml                               => 'xml'
flavor show                                   => FLAVOR
flavor delete                                 => FLAVOR
flavor delete ''                              => FLAVOR: ''
flavor list all                               => all
flavor create                                 => NAME
flavor create ''                              => argument NAME: ''
flavor create ' small'                        => argument NAME: ' small'
flavor create {LINES}                           => argument NAME: 'two\nlines'
flavor create {LONG}                            => argument NAME
flavor create small --id ''                   => argument --id: ''
flavor create small --id a/b                  => argument --id: 'a/b'
flavor create small --id 'a '                 => argument --id: 'a '
flavor create small --vcpus 0                 => argument --vcpus: '0'
flavor create small --vcpus 2.5               => argument --vcpus: '2.5'
flavor create small --vcpus 1_0               => argument --vcpus: '1_0'
flavor create small --vcpus 2147483648        => argument --vcpus: '2147483648'
flavor create small --ram 0                   => argument --ram: '0'
flavor create small --ram {NINES}               => argument --ram: '999
flavor create small --disk=-1                 => argument --disk: '-1'
flavor create small --ephemeral x             => argument --ephemeral: 'x'
flavor create small --swap 1G                 => argument --swap: '1G'
flavor create small --rxtx-factor 0           => argument --rxtx-factor: '0'
flavor create small --rxtx-factor nan         => argument --rxtx-factor: 'nan'
flavor create small --rxtx-factor 1e999       => argument --rxtx-factor: '1e999'
flavor create small --rxtx-factor much        => argument --rxtx-factor: 'much'
flavor create small --public --private        => --public
flavor create small --description ''          => argument --description: ''
flavor create small --property VGPU           => argument --property: 'VGPU' is not KEY=VALUE
flavor create small --property =1             => argument --property: ''
flavor create small --property a/b=1          => argument --property: 'a/b'
flavor create small --property {LONG}=1         => argument --property
flavor create small --property a={LONG}         => the value of a: 'xxx
flavor create small --property a={BYTES}        => the value of a: '\udcff'
flavor create small --property a=1 --property a=1 => argument --property: a occurs twice
"""


def _cases() -> dict[str, list[tuple[str, str]]]:
    cases: dict[str, list[tuple[str, str]]] = {}
    for line in _WRONG.strip().splitlines():
        command, told = (part.strip() for part in line.split("=>"))
        cases.setdefault(command.split()[0], []).append((command, told))
    return cases


@pytest.mark.parametrize("noun", _cases())
def test_wrong_usage_names_the_argument_and_has_no_effect(tmp_path: Path, noun: str) -> None:
    program = Program(tmp_path, "http://127.0.0.1:9")
    before = set(tmp_path.iterdir())
    otherwise = {}
    for command, told in _cases()[noun]:
        done = inprocess.run(program, *shlex.split(command.format(**_STANDS_FOR)))
        assert "Traceback" not in done.err
        is_short = len(done.err) < 3000  # even if it quotes a long argument
        if (done.code, done.out) != (64, "") or told not in done.err or not is_short:
            otherwise[command] = done
    assert not otherwise, otherwise
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", ["nonsense", "provider nonsense", "db drop", "--nonsense"])
def test_unknown_command_exits_with_64_and_is_named(tmp_path: Path, command: str) -> None:
    done = inprocess.run(Program(tmp_path), *command.split())

    assert done.code == 64
    assert command in done.out + done.err
