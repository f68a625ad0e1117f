"""Words that users and authors of tools use for one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.tools.search.words import stem_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUPS = """
abstract summary overview
access permission
activity event
add total sum append
address location place street
analyze analyse inspect examine diagnose investigate
approve accept confirm review
article page paper post wiki
assign give allocate owner responsible
attach upload add append
attachment file upload
audio sound voice speech mp3 wav recording
backlog queue
blob file object bucket
block paragraph section
board kanban
book log track
branch fork
browse navigate
bucket storage
certificate cert tls ssl
chart graph plot diagram visualize visualise
chat channel message conversation discussion slack
citation cite reference bibliography bibtex bibliographic
click press tap push hit
cluster kubernetes k8s
code source program
collection table
color colour
column field
command shell terminal exec
comment note reply remark answer respond feedback
commit change revision
compare diff difference change
configuration config setting
container pod docker image
convert turn transform translate
coordinate latitude longitude geocode
copy duplicate clone fork replicate
cost price spend budget
count number many total
cpu metric
crawl spider scrape
create add new make insert build generate open raise file
csv spreadsheet
database db
delete remove drop erase destroy clear discard purge rid forget
describe show detail inspect info information explain
detail info
diagnose troubleshoot debug investigate analyze why slow
dialog popup alert prompt modal
direction route drive driving way car train walk travel trip journey
disk drive storage volume
distance far long
docker container
document file pdf docx
documentation docs doc document manual handbook guide reference wiki
download export save get fetch pull
draw plot chart
dropdown select option menu
element link button
elevation height altitude high
environment env
error exception crash failure bug problem fault broken
event activity incident
execute run
explain describe understand why detail
export save convert download
extract get scrape
fast performance
field column attribute property
file document text txt
fill enter complete type
filter restrict narrow
firewall port ip network
folder directory dir
form field input survey
format bold italic style font color colour
formula calculate computation
forward redirect tunnel
freeze layout pane
get read fetch retrieve show view display look load
graph chart diagram
heap memory leak
highlight color colour mark format conditional
history log past recent previous version change
import load convert upload
index lookup speed
insert add
install deploy setup
issue bug defect problem error ticket
javascript js script
key secret shortcut
kill stop
kubernetes k8s kubectl pod deployment cluster
label tag keyword category
library package framework
limit quota restriction maximum
link connect
list show all enumerate which view display
log output print trace record track
machine server host instance computer
macro vba
map maps google
markdown md readable
memory ram heap
merge join combine integrate
message mail email sms text
metric measure statistic usage cpu
move transfer relocate shift drag put
mr merge
navigate open visit go browse load
near nearby local around close
network request http traffic
news web latest
online web internet google
order sort
outage incident health down
page site website webpage url web wiki
paper article publication study preprint research literature
paragraph section text block
pause suspend
pdf document
performance speed fast slow
permission access right restriction role allowed
picture image photo png jpg icon screenshot logo
place location business restaurant shop nearby near local spot
plan schedule design
post send
pr pull merge
price cost pricing fee expense bill money
process program application app task
publish send
queue backlog waiting
quota limit usage allowance capacity
react emoji reaction thumb
read get
recommend suggest advice advise improve
record row entry document item
relate relation relationship link connect
release version deploy
remember memory memorize store keep mind know fact observation
remove delete
rename call name
replace change
reply answer respond
repository repo codebase project
research investigate study deep
resize size bigger larger smaller grow shrink enlarge
resolve close fix done
restart reboot
review comment feedback remark
role permission access
row line record
run execute exec invoke evaluate launch start
scale resize replica instance more capacity
schema structure field type shape
scrape extract fetch crawl content
screenshot capture snapshot image picture screen
script javascript js
scroll swipe
search find query look lookup locate seek discover google
secret password credential token key
section chapter part paragraph
select choose pick
send post write message notify tell deliver publish announce
server machine host instance computer
setting configuration config option preference
sheet tab worksheet spreadsheet
snapshot backup
sort order arrange
speak say speech voice aloud read
spreadsheet excel sheet workbook worksheet xlsx
sprint iteration
start begin launch open create initiate run
state status
status state condition health
stop end kill terminate cancel abort halt quit close finish
storage bucket blob space disk
sum add total plus
summarize aggregate group pivot summary summarise
tab page window
table database sheet
tag label
team group people
template boilerplate
terminal shell command console
think reason reasoning step
ticket issue bug defect story task request
time hour clock timezone date
timezone time zone
topic subject theme
transcribe recognize dictation speech
transition status state move workflow done
type enter fill write input
undo revert rollback restore reset back
uninstall remove
unwatch unfollow unsubscribe
update change edit modify set alter patch adjust correct fix replace
upload import push put attach send
url link address website site web
user member person people colleague account who developer author profile
version release revision
video recording film screencast replay
vm machine virtual server computer instance
wait until
watch follow subscribe monitor track observe notify alert
web internet online google
word docx document
workbook spreadsheet excel xlsx
worklog time hour log work
write save store put jot record note
"""
"""Groups, one a line: the first word and each of the others stand for one another, the others not."""


def _by_stem() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _GROUPS.split("\n"):
        first, *others = dict.fromkeys(map(stem_of, line.split())) or [""]
        for other in others:
            found.setdefault(first, {})[other] = None
            found.setdefault(other, {})[first] = None
    return {stem: tuple(others) for stem, others in found.items()}


SYNONYMS = _by_stem()
"""Stems that a stem may stand for."""
