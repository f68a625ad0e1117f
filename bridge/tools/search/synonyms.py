"""Words that users and authors of tools use for one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.tools.search.words import stem_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUPS = """
abstract summary overview
access permission
account profile
activity event
add total sum append
address location place street
agenda calendar schedule
alarm alert monitor
analyze analyse inspect examine diagnose investigate
answer reply respond
appointment event meeting calendar
approve accept confirm review
archive label modify
article page paper post wiki
assign give allocate owner responsible
associate link relate attach connect
attach upload add append
attachment file upload
audio sound voice speech mp3 wav recording
automation workflow rule trigger
availability free busy
backlog queue
backup dump snapshot export
balance account
blob file object bucket
block paragraph section
board kanban
book log track
bookmark favorite save
branch fork
browse navigate
bucket storage
build pipeline job ci
buy order purchase cart
cache redis key
calendar event meeting appointment
certificate cert tls ssl
charge payment bill
chart graph plot diagram visualize visualise
chat channel message conversation discussion slack
ci build check pipeline workflow status
citation cite reference bibliography bibtex bibliographic
click press tap push hit
client customer contact
cluster kubernetes k8s
code source program
collection table
color colour
column field
command shell terminal exec
comment note reply remark answer respond feedback
commit change revision
company organization account
compare diff difference change
configuration config setting
contact person customer people
container pod docker image
convert turn transform translate
coordinate latitude longitude geocode
copy duplicate clone fork replicate
cost price spend budget
count number many total
coupon discount promotion
cpu metric
crawl spider scrape
create add new make insert build generate open raise file
credential auth key token login
crm contact deal company
csv spreadsheet
customer client user contact
database db
deal opportunity
delete remove drop erase destroy clear discard purge rid forget
describe show detail inspect info information explain
detail info
diagnose troubleshoot debug investigate analyze why slow
dialog popup alert prompt modal
diff patch
direction route drive driving way car train walk travel trip journey
disk drive storage volume
distance far long
dns domain
docker container
document file pdf docx
documentation docs doc document manual handbook guide reference wiki
download export save get fetch pull
draft unsent
draft write compose
draw plot chart
dropdown select option menu
element link button
elevation height altitude high
email mail inbox gmail outlook message
employee user person
engagement call note meeting
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
flight trip travel
folder directory dir
follow subscribe
forecast weather
form field input survey
format bold italic style font color colour
formula calculate computation
forward redirect tunnel
freeze layout pane
get read fetch retrieve show view display look load
gmail email
goal target
graph chart diagram
heap memory leak
highlight color colour mark format conditional
history log past recent previous version change
import load convert upload
inbox email message
index indices
index lookup speed
insert add
install deploy setup
invoice bill payment
issue bug defect problem error ticket
javascript js script
job run build task
joke fun
key secret shortcut
kill stop
kubernetes k8s kubectl pod deployment cluster
label tag category folder
label tag keyword category
lead contact prospect
library package framework
limit quota restriction maximum
link connect
list show all enumerate which view display
log output print trace record track
login auth sign authenticate
logo image icon
machine server host instance computer
macro vba
mail send
mailbox inbox folder
map maps google
mapping schema field type
markdown md readable
meeting calendar event
membership member
memory ram heap
merge join combine integrate
message mail email sms text
metric measure statistic usage cpu
move transfer relocate shift drag put
mr merge
music song track audio
navigate open visit go browse load
near nearby local around close
network request http traffic
news headline article
news web latest
newsletter mail campaign
online web internet google
order purchase
order sort
outage incident health down
page site website webpage url web wiki
panel chart dashboard
paper article publication study preprint research literature
paragraph section text block
pause suspend
payment pay charge transaction
pdf document
performance speed fast slow
permission access right restriction role allowed
phone call number
picture image photo png jpg icon screenshot logo
place location business restaurant shop nearby near local spot
plan schedule design
playlist song track
post send
pr pull merge
price cost pricing fee expense bill money
price quote
process program application app task
product item catalog
property field attribute column
publish send
queue backlog waiting
quota limit usage allowance capacity
quote price stock
rain weather
rate exchange
react emoji reaction thumb
read get
receipt invoice
recommend suggest advice advise improve
record row entry document item
refund return
relate relation relationship link connect
release version deploy
remember memory memorize store keep mind know fact observation
remind reminder alert
reminder task
remote url
remove delete
rename call name
replace change
reply answer respond
repository repo codebase project
research investigate study deep
reservation booking book
resize size bigger larger smaller grow shrink enlarge
resolve close fix done
restart reboot
revenue sale
review comment feedback remark
role permission access
row line record
rows records
rule filter policy
run execute exec invoke evaluate launch start
sale deal order
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
shipment delivery order
shop store
shut close stop
sms phone text
snapshot backup
song track music
sort order arrange
spam junk email
speak say speech voice aloud read
speaker device
spreadsheet excel sheet workbook worksheet xlsx
sprint iteration
start begin launch open create initiate run
state status
status state condition health
stock share
stop end kill terminate cancel abort halt quit close finish
storage bucket blob space disk
store shop save
subscriber member
subscription plan
sum add total plus
sum aggregate
summarize aggregate group pivot summary summarise
supplier vendor
tab page window
table database sheet
tag label
task todo reminder
team group people
temperature weather
template boilerplate
terminal shell command console
think reason reasoning step
ticket issue bug defect story task request
time hour clock timezone date
timezone time zone
todo task
token credential
topic subject theme
traffic request
transcribe recognize dictation speech
transition status state move workflow done
translate translation language
trash delete
trigger run fire start
type enter fill write input
typo fix
undo revert rollback restore reset back
uninstall remove
unread email
unsubscribe remove
unwatch unfollow unsubscribe
update change edit modify set alter patch adjust correct fix replace
upload import push put attach send
url link address website site web
user member person people colleague account who developer author profile
vector embedding similar
version release revision
video recording film screencast replay
video youtube clip
vm machine virtual server computer instance
wait until
warning alert
watch follow subscribe monitor track observe notify alert
weather forecast temperature
web internet online google
webhook callback
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
